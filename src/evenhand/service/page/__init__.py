"""The page for planners: a programme in a browser, drawn on the server, with small scripts of its own.

    routes       what a browser asks for, each one call into the library
    today, fairness, what_if, arms, model
                 each view: from the programme to the facts of its template
    charts       drawings as SVG, in the colours of the style sheet
    forms        what plain forms send, with and without a file
    telling      events, times and numbers in a planner's words
    templates    HTML; every text is escaped
    static       the style sheet, and scripts that make forms quicker; all works without them

Nothing here is mathematics, and nothing stands in a template that the policy of content security would refuse: no
script, no style and no handler within the HTML.
"""
